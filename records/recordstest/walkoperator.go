package recordstest

import (
	"pgregory.net/rapid"

	"github.com/probate-dev/probate/records"
)

// The steps of a random walk that an operator takes. He may have looked long
// ago, and repeats himself at times.

func (w *walk) byHand(t *rapid.T) records.Intervention {
	i := intervention(w.claim(t))
	i.Actor = pick(t, []string{"ada", "bob"}, "operator")
	if rapid.Bool().Draw(t, "as it stands") {
		if r, ok := w.model.records[i.ID]; ok {
			i.Epoch = r.Epoch
		}
	}
	return i
}

func (w *walk) releaseByHand(t *rapid.T) {
	i := w.byHand(t)
	got, err := w.f.store.ReleaseByOperator(w.f.Context(), i)
	w.intervened(t, i, nil, got, err)
}

func (w *walk) resolve(t *rapid.T) {
	i := w.byHand(t)
	o := outcome(rapid.StringN(0, 3, 3).Draw(t, "body"), pick(t, retentions, "retention"))
	got, err := w.f.store.ResolveByOperator(w.f.Context(), i, o)
	w.intervened(t, i, &o, got, err)
}

func (w *walk) intervened(t *rapid.T, i records.Intervention, o *records.Outcome, got records.Record, err error) {
	_, wantErr := w.model.intervene(w.now, i, o)
	sameError(t, err, wantErr)
	if err == nil {
		w.model.records[i.ID].Attempt = got.Attempt // how a store marks it is its own affair
		w.agree(t, got)
	}
}

// erase forgets what all walks over the database have left, so what it counts
// is not compared.
func (w *walk) erase(t *rapid.T) {
	e := erasure()
	for more := true; more; {
		page, err := w.f.store.Erase(w.f.Context(), e)
		w.f.check(err)
		more, e.After = page.More, page.Next
	}
	if _, err := w.model.erase(w.now, erasure()); err != nil {
		t.Fatal(err)
	}
	for _, key := range w.keys {
		w.agreesOn(t, key.ID)
	}
}
