package api

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// code names a kind of problem; clients branch on it.
type code string

const (
	codeKeyMissing          code = "idempotency_key_missing"
	codeKeyInvalid          code = "idempotency_key_invalid"
	codeKeyTooLong          code = "idempotency_key_too_long"
	codeKeyReused           code = "idempotency_key_reused"
	codeInProgress          code = "operation_in_progress"
	codeOutcomeUnknown      code = "outcome_unknown"
	codeNotReplayable       code = "result_not_replayable"
	codeUnreadable          code = "result_unreadable"
	codeRequestTooLarge     code = "request_too_large"
	codeRequestIncomplete   code = "request_incomplete"
	codeRequestInvalid      code = "request_invalid"
	codeRealmMissing        code = "realm_missing"
	codePrincipalMissing    code = "principal_missing"
	codeTokenInvalid        code = "token_invalid"
	codeAuthorizationDown   code = "authorization_unavailable"
	codeStoreUnavailable    code = "store_unavailable"
	codeUpstreamUnavailable code = "upstream_unavailable"
	codeUpstreamFailed      code = "upstream_failed"
	codeUpstreamTimeout     code = "upstream_timeout"
	codeExecutionFailed     code = "execution_failed"
	codeNotFound            code = "not_found"
	codeInternal            code = "internal_error"
)

// kind is what all problems of one code have in common.
type kind struct {
	status     int
	title      string
	detail     string
	retryable  bool   // the same request may succeed later, unchanged
	sameKey    bool   // it must then carry the same key
	retryAfter int    // seconds, where the occurrence does not say
	stripe     string // type of Stripe's error object
	iceberg    string // type of Iceberg's
}

// kinds is every problem there is.
var kinds = map[code]kind{
	codeKeyMissing: {
		status: 400, title: "Idempotency-Key missing",
		detail: "This operation needs an Idempotency-Key header.",
		stripe: "invalid_request_error", iceberg: "BadRequestException",
	},
	codeKeyInvalid: {
		status: 400, title: "Idempotency-Key invalid",
		stripe: "invalid_request_error", iceberg: "BadRequestException",
	},
	codeKeyTooLong: {
		status: 400, title: "Idempotency-Key too long",
		stripe: "invalid_request_error", iceberg: "BadRequestException",
	},
	codeKeyReused: {
		status: 422, title: "Idempotency-Key used for another request",
		detail: "This key was used for a request that differs in operation, path, query, media type or body. Nothing was done.",
		stripe: "idempotency_error", iceberg: "UnprocessableEntityException",
	},
	codeInProgress: {
		status: 409, title: "The operation is still running",
		detail:    "A request with this key is being executed. Ask again with the same key.",
		retryable: true, sameKey: true, retryAfter: 1,
		stripe: "invalid_request_error", iceberg: "ServiceUnavailableException",
	},
	codeOutcomeUnknown: {
		status: 409, title: "The outcome of the operation is not known",
		detail:  "It was executed, and nobody can tell whether it took effect. Do not send it again under another key before you have looked.",
		sameKey: true,
		stripe:  "api_error", iceberg: "CommitStateUnknownException",
	},
	codeNotReplayable: {
		status: 409, title: "The response was not kept",
		detail:  "The operation is finished and is not executed again, but its response was too large, streamed or secret.",
		sameKey: true,
		stripe:  "api_error", iceberg: "CommitStateUnknownException",
	},
	codeUnreadable: {
		status: 500, title: "The record cannot be read",
		detail:  "What is stored under this key cannot be read here, so nothing was done for this request. Do not send it again under another key before you have looked.",
		sameKey: true,
		stripe:  "api_error", iceberg: "CommitStateUnknownException",
	},
	codeRequestTooLarge: {
		status: 413, title: "Request too large",
		stripe: "invalid_request_error", iceberg: "BadRequestException",
	},
	codeRequestIncomplete: {
		status: 400, title: "Request incomplete",
		detail:    "The body ended early. Nothing was done.",
		retryable: true, sameKey: true,
		stripe: "invalid_request_error", iceberg: "BadRequestException",
	},
	codeRequestInvalid: {
		status: 400, title: "Request cannot be recorded",
		stripe: "invalid_request_error", iceberg: "BadRequestException",
	},
	codeRealmMissing: {
		status: 400, title: "Realm missing",
		stripe: "invalid_request_error", iceberg: "BadRequestException",
	},
	codePrincipalMissing: {
		status: 400, title: "Principal missing",
		stripe: "invalid_request_error", iceberg: "BadRequestException",
	},
	codeTokenInvalid: {
		status: 401, title: "Token missing or not valid",
		sameKey: true,
		stripe:  "authentication_error", iceberg: "NotAuthorizedException",
	},
	codeAuthorizationDown: {
		status: 503, title: "Authorization cannot be checked",
		detail:    "Nothing was done.",
		retryable: true, sameKey: true, retryAfter: 1,
		stripe: "api_error", iceberg: "ServiceUnavailableException",
	},
	codeStoreUnavailable: {
		status: 503, title: "Not available at the moment",
		detail:    "This request was not executed. Ask again with the same key.",
		retryable: true, sameKey: true, retryAfter: 1,
		stripe: "api_error", iceberg: "ServiceUnavailableException",
	},
	codeUpstreamUnavailable: {
		status: 503, title: "The service cannot be reached",
		detail:    "Nothing was sent to it.",
		retryable: true, sameKey: true, retryAfter: 1,
		stripe: "api_error", iceberg: "ServiceUnavailableException",
	},
	codeUpstreamFailed: {
		status: 502, title: "The service broke off",
		retryable: true, sameKey: true,
		stripe: "api_error", iceberg: "BadGatewayException",
	},
	codeUpstreamTimeout: {
		status: 504, title: "The service did not answer in time",
		retryable: true, sameKey: true,
		stripe: "api_error", iceberg: "GatewayTimeoutException",
	},
	codeExecutionFailed: {
		status: 500, title: "The operation failed",
		retryable: true, sameKey: true,
		stripe: "api_error", iceberg: "InternalServerErrorException",
	},
	codeNotFound: {
		status: 404, title: "No such route",
		stripe: "invalid_request_error", iceberg: "NotFoundException",
	},
	codeInternal: {
		status: 500, title: "Internal error",
		sameKey: true,
		stripe:  "api_error", iceberg: "InternalServerErrorException",
	},
}

// problem is one occurrence.
type problem struct {
	code       code
	detail     string            // default: the kind's
	retryAfter int               // seconds; default: the kind's
	record     records.ID        // zero: there is none
	stored     *records.Response // with codeNotReplayable: what is left of the response
	headers    http.Header       // besides the usual ones
	refusal    *reply            // answer with this instead
}

// problemOf is the problem that an error of the coordinator stands for.
func problemOf(err error) problem {
	switch {
	case errors.Is(err, takeover.ErrNotServing), errors.Is(err, records.ErrUnavailable):
		return problem{code: codeStoreUnavailable}
	case errors.Is(err, records.ErrInvalid):
		return problem{code: codeRequestInvalid, detail: err.Error()}
	case errors.Is(err, records.ErrSealed), errors.Is(err, records.ErrCorrupt):
		return problem{code: codeUnreadable}
	}
	return problem{code: codeInternal}
}

// document is a problem on the wire (RFC 9457), with our extensions.
type document struct {
	Type         string `json:"type"`
	Title        string `json:"title"`
	Status       int    `json:"status"`
	Detail       string `json:"detail,omitempty"`
	Instance     string `json:"instance"`
	Code         code   `json:"code"`
	Retryable    bool   `json:"retryable"`
	SameKey      bool   `json:"same_key"`
	RetryAfter   int    `json:"retry_after,omitempty"`
	OperationRef string `json:"operation_ref,omitempty"`

	StoredStatus int    `json:"stored_status,omitempty"`
	Location     string `json:"location,omitempty"`
	StoredSize   *int64 `json:"stored_size,omitempty"`
	StoredDigest string `json:"stored_digest,omitempty"` // as Content-Digest, RFC 9530
}

// document writes the problem down. types comes before the code in its type.
func (p problem) document(types string) document {
	k := kinds[p.code]
	d := document{
		Type: types + string(p.code), Title: k.title, Status: k.status, Detail: p.detail, Code: p.code,
		Retryable: k.retryable, SameKey: k.sameKey, RetryAfter: max(p.retryAfter, k.retryAfter),
	}
	setDefault(&d.Detail, k.detail)
	if p.record == (records.ID{}) {
		d.Instance = "urn:uuid:" + uuid.NewString()
	} else {
		d.OperationRef = p.record.String()
		d.Instance = "urn:probate:record:" + d.OperationRef
	}
	if p.stored != nil {
		d.StoredStatus = p.stored.Status
		d.Location = headerOf(p.stored.Headers, "Location")
		d.StoredDigest = headerOf(p.stored.Headers, headerDigest)
		if n, err := strconv.ParseInt(headerOf(p.stored.Headers, "Content-Length"), 10, 64); err == nil {
			d.StoredSize = &n
		}
	}
	return d
}

// wholeSeconds rounds up, to at least one.
func wholeSeconds(d time.Duration) int {
	return max(int((d+time.Second-1)/time.Second), 1)
}

// headerOf is the first value of a stored header.
func headerOf(headers []records.Header, name string) string {
	for _, h := range headers {
		if h.Name == name {
			return h.Value
		}
	}
	return ""
}
