package transfer

import (
	"strings"
	"testing"
)

const start = `{"messageId":"m","participantId":"p","counterPartyId":"c","dataspaceContext":"x","processId":"tp-1","agreementId":"a",
 "datasetId":"d","profile":"https://w3id.org/dspace-sig/profile/http-push","claims":{},"labels":[],"metadata":{"b":1,"a":{"y":2,"x":[]}},
 "dataAddress":{"@type":"DataAddress","endpointType":"http-push","endpoint":"https://consumer/in","endpointProperties":[
   {"@type":"EndpointProperty","name":"authorization","value":"T"},{"name":"region","value":"eu"},{"name":"keyName","value":"object"}]}}`

func read(t *testing.T, text string) Message {
	t.Helper()
	m, err := readMessage(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestFingerprint is about which starts ask for the same.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	first := read(t, start)
	for name, c := range map[string]struct {
		old, new string
		same     bool
	}{
		"AnotherMessageID":       {`"messageId":"m"`, `"messageId":"n"`, true},
		"AnotherCallbackAddress": {`"messageId":"m"`, `"messageId":"m","callbackAddress":"http://other"`, true},
		"AFreshSecret":           {`"value":"T"`, `"value":"U"`, true},
		"EDCsWords":              {`"profile":`, `"transferType":`, true},
		"LaterDraftsWords":       {`"processId":`, `"dataFlowId":`, true},
		"MembersInAnotherOrder":  {`"b":1,"a":{"y":2,"x":[]}`, `"a":{"x":[],"y":2},"b":1`, true},
		"AMemberNobodyKnows":     {`"messageId":"m"`, `"messageId":"m","later":true`, true},
		"NoClaims":               {`"claims":{},`, ``, true},
		"AnotherEndpoint":        {`consumer/in`, `consumer/on`, false},
		"AnotherProperty":        {`"value":"eu"`, `"value":"us"`, false},
		"AnotherObject":          {`"value":"object"`, `"value":"subject"`, false},
		"AnotherDataset":         {`"datasetId":"d"`, `"datasetId":"e"`, false},
		"OtherMetadata":          {`"b":1`, `"b":2`, false},
		"AClaim":                 {`"claims":{}`, `"claims":{"a":1}`, false},
		"NotTracked":             {`"messageId":"m"`, `"messageId":"m","trackable":false`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(start, c.old, c.new, 1)
			if text == start {
				t.Fatal("nothing was changed")
			}
			other := read(t, text)
			if same := first.fingerprint(true) == other.fingerprint(true); same != c.same {
				t.Errorf("the same: %t, want %t", same, c.same)
			}
		})
	}
	t.Run("SurvivesBeingStored", func(t *testing.T) {
		t.Parallel()
		raw, err := Task{Start: &first}.bytes()
		if err != nil {
			t.Fatal(err)
		}
		stored, err := taskOf(raw)
		if err != nil || !stored.sameStart(&first) {
			t.Errorf("%s is another start: %v", raw, err)
		}
	})
}

func TestMessage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ old, new, says string }{
		"WithASecretInItsCallbackAddress": {`"messageId":"m"`, `"messageId":"m","callbackAddress":"http://c/x?token=T"`, "has a query"},
		"WithAnIDThatLeadsUpwards":        {`"processId":"tp-1"`, `"processId":".."`, "no step"},
	} {
		t.Run(name+"IsRefused", func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(start, c.old, c.new, 1)
			if _, err := readMessage(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want %q", text, err, c.says)
			}
		})
	}
}

func TestDirection(t *testing.T) {
	t.Parallel()
	for profile, want := range map[string]Direction{
		"https://w3id.org/dspace-sig/profile/http-push": Push, "HttpData-PUSH": Push, "AmazonS3-Pull": Pull,
		"pull": Pull, "http": "", "push-http": "", "": "",
	} {
		if got, err := direction(profile); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", profile, got, err, want)
		}
	}
}

func TestBegins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address, base string
		want          bool
	}{
		{"https://cp/a/b", "https://cp/a", true},
		{"https://cp/a", "https://cp/a/", true},
		{"https://cp/ab", "https://cp/a", false},
		{"https://cp.evil/a", "https://cp", false},
		{"http://cp/a", "https://cp", false},
		{"https://cp:444/a", "https://cp", false},
		{"https://cp/%61/b", "https://cp/a", false},
		{"https://cp@evil/a", "https://cp", false},
	} {
		if got := begins(c.address, c.base); got != c.want {
			t.Errorf("%s begins with %s: %t", c.address, c.base, got)
		}
	}
}

func TestKind(t *testing.T) {
	t.Parallel()
	for of, want := range map[string]string{
		"https://w3id.org/dspace-sig/profile/http-push": "http", "HttpData-PUSH": "http", "HttpData": "http",
		"https://w3id.org/idsa/v4.1/HTTP": "http", "AmazonS3": "s3", "https://x/s3-push": "s3", "file": "file", "https://x/kafka": "",
	} {
		if got := kind(of); got != want {
			t.Errorf("%q: %q, want %q", of, got, want)
		}
	}
}

func FuzzMessage(f *testing.F) {
	f.Add(start)
	f.Add(`{"processId":"\u0000","labels":null,"claims":[],"dataAddress":{}}`)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := readMessage(strings.NewReader(text))
		if err != nil {
			return
		}
		raw, err := Task{Start: &m}.bytes()
		if err != nil {
			t.Fatal(err)
		}
		stored, err := taskOf(raw)
		if err != nil || !stored.sameStart(&m) {
			t.Errorf("%q is another start when it was stored: %v", text, err)
		}
	})
}
