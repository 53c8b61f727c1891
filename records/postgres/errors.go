package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/lib/pq"

	"github.com/probate-dev/probate/records"
)

// fault is what a driver error means for the caller.
type fault int

const (
	// faultInternal: the database refused what we sent. No input of a client
	// may lead here.
	faultInternal fault = iota
	// faultUnavailable: it was not asked, or the answer was lost. Repeating is
	// safe.
	faultUnavailable
	// faultContended: another transaction stood in the way of at least one row.
	// Repeating is safe, and each row alone stands in nobody's way.
	faultContended
	// faultReadOnly: this server takes no writes any more. As unavailable, but
	// its connections are of no use.
	faultReadOnly
)

// faultOf reads a driver error.
func faultOf(err error) fault {
	var server *pq.Error
	var network net.Error
	switch {
	case errors.As(err, &server):
		return faultOfCode(string(server.Code))
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed), errors.As(err, &network),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return faultUnavailable
	case strings.HasPrefix(err.Error(), "pq: could not connect"),
		strings.Contains(err.Error(), "hot standby"), strings.Contains(err.Error(), "session is read-only"):
		// The driver has no type for "no host of the list would do".
		return faultUnavailable
	}
	return faultInternal
}

// faultOfCode reads an SQLSTATE (PostgreSQL manual, appendix A).
func faultOfCode(code string) fault {
	switch code {
	case "57P01", "57P02", "57P03", // shut down, crashed, starting
		"57014",          // cancelled, by a timeout of ours or by an operator
		"25P03", "25P04", // an idle, or a long, transaction was ended
		"53300": // too many connections
		return faultUnavailable
	case "40001", "40P01", "55P03": // serialization, deadlock, lock timeout
		return faultContended
	case "25006": // read-only transaction: a standby, or a demoted primary
		return faultReadOnly
	}
	if strings.HasPrefix(code, "08") || strings.HasPrefix(code, "53") || strings.HasPrefix(code, "58") {
		return faultUnavailable // connection; out of a resource; the system beneath
	}
	return faultInternal
}

// classify is the one place where a driver's error becomes ours. A nil error
// stays nil; one that is ours already keeps its meaning.
func classify(ctx context.Context, verb string, err error) error {
	if err == nil {
		return nil
	}
	if isOurs(err) {
		return fmt.Errorf("%s: %w", verb, err)
	}
	if faultOf(err) == faultInternal {
		return fmt.Errorf("%s: %w", verb, err)
	}
	// The driver reports a context that ended as the server's 57014, so the
	// cause is joined here.
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%s: %w: %w: %w", verb, records.ErrUnavailable, cause, err)
	}
	return fmt.Errorf("%s: %w: %w", verb, records.ErrUnavailable, err)
}

// isOurs reports whether err already says what the store's contract says.
func isOurs(err error) bool {
	for _, own := range []error{
		records.ErrFenced, records.ErrNotActive, records.ErrNotFound,
		records.ErrRefuted, records.ErrLeaseHeld, records.ErrObserverUnfit, records.ErrBraked,
		records.ErrSlotTaken, records.ErrUnavailable, records.ErrInvalid, records.ErrCorrupt,
		records.ErrWrongCluster, records.ErrSchemaTooOld, records.ErrBinaryTooOld,
	} {
		if errors.Is(err, own) {
			return true
		}
	}
	return false
}

// isContended reports that another transaction stood in the way.
func isContended(err error) bool { return faultOf(err) == faultContended }

// isUndefined reports that a table or schema is not there.
func isUndefined(err error) bool {
	server, ok := errors.AsType[*pq.Error](err)
	return ok && (server.Code == "42P01" || server.Code == "3F000")
}
