// Package move moves bytes from a source to a sink: whole or not at all, once.
//
// # Promises
//
// [Copy] reads a [Source] into a [Sink] and commits it only if the bytes are
// those that were declared: the length, the SHA-256, the limit. Before that
// nothing stands under the sink's final name, or is taken as whole by its
// receiver. When Copy returns, with or without an error, no goroutine of it is
// left, and what it had begun at the sink is committed, taken away, or kept to
// be resumed because [Job.Keep] said so.
//
// Memory is bounded, whatever the length: a megabyte of buffers a copy, and at
// an S3 sink 5 to 16 MiB more if the source does not say how long it is.
// Reading, hashing and writing go side by side; a slow sink slows the source
// down, and the other way round.
//
// A cancelled context stops the bytes at once, also while either end blocks.
//
// A transient fault (I/O, a stall, 408, 425, 429, 5xx) is retried with backoff:
// the source is read on from where it broke if it still has the same validator,
// and the sink goes on from its last checkpoint. What cannot go on begins
// again from zero. Retries are counted, and given up after a number of them
// that brought nothing new.
//
// A [Checkpoint] holds all that another process needs to go on: the offset,
// the state of the hash, the source's validator, and the sink's own token.
//
// The last one is saved right before the commit and says what was committed. If
// its owner died before it could tell anybody, the next one sees at the sink that
// it took place, and reads nothing: see [Lander].
//
// Every [Identity] has an epoch. To begin at one takes away what older epochs
// of the same flow have begun, so that their owner, should it wake up, finds
// nothing to commit; to begin below one that stands there is
// [ErrSuperseded]. The window that is left, from the last check by
// [Job.BeforeCommit] to the commit, is closed at the sink as far as the sink
// can: see [FileSink], [S3Sink] and [HTTPSink].
//
// # Not promised
//
// A receiver behind [HTTPSink] is a stranger. It is never sent a request that
// looks whole before the commit, but what it makes of a broken one, or of an
// old owner's request that was whole already, is its own affair; the request
// names the epoch for those who want to know.
//
// # Imports
//
// The standard library, cenkalti/backoff and minio-go. It knows nothing of
// records, flows, or how a transfer is asked for.
//
// # Reading order
//
// ends.go (Source, Sink, Part), checkpoint.go, fault.go (every error),
// job.go (what a caller asks for), copy.go (attempts), pipe.go (one attempt's
// bytes), landing.go (whether it was done), watch.go (stalls). The ends: file.go, filesource.go, filesink.go,
// tempname.go, writeback_*.go; transport.go, status.go, httpsource.go, httpsink.go; s3.go,
// s3source.go, s3sink.go, s3part.go.
package move
