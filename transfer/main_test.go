package transfer_test

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"
)

// client keeps no connection, so that none is left when the tests end.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
