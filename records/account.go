package records

// Account is what a query says became of an operation.
type Account struct {
	Finding  string   // applied, not_applied, pending or undecidable
	Reason   string   // for operators; may be empty
	Response Response // with applied
}
