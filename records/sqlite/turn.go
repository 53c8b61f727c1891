package sqlite

import "errors"

// errNoPlace: more stores are open on one file than there are places.
var errNoPlace = errors.New("too many stores are open on this file")
