package sqlite

// WithRewrite returns c with statements changed before they are prepared.
func WithRewrite(c Config, rewrite func(text string) string) Config {
	c.rewrite = rewrite
	return c
}

// WithMaxBatch returns c with at most n decisions in a transaction.
func WithMaxBatch(c Config, n int) Config {
	c.maxBatch = n
	return c
}

// The statements whose guards are tested, and the guards that have names.
const (
	Fence           = fence
	FenceSlot       = fenceSlot
	FenceByOperator = fenceByOperator
	Heartbeat       = heartbeat
	PurgeExecutors  = purgeExecutors
	Reserve         = reserve
	TakeOver        = takeOver
	ClaimUnknown    = claimUnknown
	Finalize        = finalize
	Purge           = purge

	Claimable   = claimable
	Expired     = expired
	Unrefuted   = unrefuted
	Unprotected = unprotected
	Fit         = fit
	Unbraked    = unbraked
)
