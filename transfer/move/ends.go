package move

import (
	"context"
	"io"
)

// Source is one thing to read.
type Source interface {
	// Open starts to read at byte from. A from above zero is a wish, granted
	// only if the source still is what validator recognises; if it is not, or
	// the source cannot begin anywhere else, the body begins at zero and says
	// so. ctx lives as long as the body: when it ends, a Read that blocks
	// returns.
	Open(ctx context.Context, from int64, validator string) (*Body, error)
}

// Body is a source that is open.
type Body struct {
	io.ReadCloser

	// From is the offset of the first byte: zero, or what was asked for.
	From int64
	// Length is the whole length of the source, not what is left of it.
	// Negative: not known.
	Length int64
	// Validator recognises these bytes when they are opened again. Empty: they
	// cannot be recognised, so reading always begins at zero.
	Validator string
	// Unframed: the end of the body cannot be told from a broken connection.
	// Copy believes such an end only if it was told the length or the digest.
	Unframed bool
}

// Identity says who writes to a sink.
type Identity struct {
	// Flow names the transfer, in any bytes. It is hashed where it has to be
	// part of a name.
	Flow string
	// Epoch is the fence: of two owners of one flow, the later one has the
	// larger epoch.
	Epoch int64
}

// Start is what a sink is told when bytes are about to come.
type Start struct {
	Identity

	// Length is how many bytes there will be in all. Negative: not known.
	Length int64
	// Resume is the checkpoint to go on from. Nil: begin at zero.
	Resume *Checkpoint
	// Moved is to be called whenever bytes have really left, from any
	// goroutine, if a Write may take long: it tells slow from stalled. May be
	// nil.
	Moved func()
}

func (s Start) moved() {
	if s.Moved != nil {
		s.Moved()
	}
}

// Sink is one place to write to.
type Sink interface {
	// Begin takes away what older epochs of the flow have begun, except what
	// it resumes from, and makes a part to write to. [ErrSuperseded]: a newer
	// epoch has begun. ctx lives as long as the part: when it ends, a Write
	// that blocks returns.
	Begin(ctx context.Context, s Start) (Part, error)
	// Discard takes away what the flow has begun at this epoch or an older
	// one. The token is that of the last checkpoint, if there was one. There
	// may be nothing to take away.
	Discard(ctx context.Context, id Identity, token string) error
}

// Part is what was begun at a sink and is not yet there. It is used by one
// goroutine at a time. Its life ends with Commit, Abort or Keep.
type Part interface {
	io.Writer

	// Offset is where the next Write goes: after Begin zero, or the offset of
	// the checkpoint that it resumed from.
	Offset() int64
	// Room is how many bytes a Write may have at most; before more, there has
	// to be a Checkpoint. Negative: any number. A sink that can hold bytes
	// only in pieces says so here.
	Room() int64
	// Checkpoint makes durable what can be, and says what that is: the offset
	// up to which a later Begin finds the bytes, which may lie before Offset,
	// and the token by which it finds them. The zero Mark: nothing can be
	// resumed.
	Checkpoint() (Mark, error)
	// Seal says that there will be no more bytes. What takes long is done here
	// (a sync, the last piece), so that little is left between the last look
	// at the fence and the commit.
	Seal() error
	// Commit puts the bytes under their final name, all at once.
	// [ErrSuperseded]: a newer epoch has taken this part away.
	Commit(ctx context.Context) error
	// Abort takes away what was written. Afterwards nothing can be resumed.
	Abort(ctx context.Context) error
	// Keep lets go of the part and leaves it to be resumed, or discarded.
	Keep() error
}

// Mark is what a sink durably holds.
type Mark struct {
	Offset int64
	Token  string
}
