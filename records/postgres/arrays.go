package postgres

import (
	"database/sql/driver"
	"encoding/binary"

	"github.com/lib/pq/oid"

	"github.com/probate-dev/probate/records"
)

// array is a one-dimensional array in PostgreSQL's binary form (array_recv).
// The driver sends a []byte argument as it is, so a batch travels without
// being written out in hexadecimal and parsed back.
type array struct {
	b     []byte
	nulls bool
	n     int
}

const arrayHeader = 20

// newArray returns an empty array of a type, with room for n elements of about
// size bytes.
func newArray(element oid.Oid, n, size int) *array {
	a := &array{b: make([]byte, arrayHeader, arrayHeader+n*(4+size))}
	binary.BigEndian.PutUint32(a.b[0:], 1) // dimensions
	binary.BigEndian.PutUint32(a.b[8:], uint32(element))
	binary.BigEndian.PutUint32(a.b[16:], 1) // lower bound
	return a
}

// add appends an element in its own binary form.
func (a *array) add(element []byte) {
	a.b = binary.BigEndian.AppendUint32(a.b, uint32(len(element)))
	a.b = append(a.b, element...)
	a.n++
}

// addString appends the bytes of a string.
func (a *array) addString(element string) {
	a.b = binary.BigEndian.AppendUint32(a.b, uint32(len(element)))
	a.b = append(a.b, element...)
	a.n++
}

// addInt appends a bigint.
func (a *array) addInt(element int64) {
	a.b = binary.BigEndian.AppendUint32(a.b, 8)
	a.b = binary.BigEndian.AppendUint64(a.b, uint64(element))
	a.n++
}

// addSmall appends a smallint.
func (a *array) addSmall(element int) {
	a.b = binary.BigEndian.AppendUint32(a.b, 2)
	a.b = binary.BigEndian.AppendUint16(a.b, uint16(element))
	a.n++
}

// addNull appends a null.
func (a *array) addNull() {
	a.b = binary.BigEndian.AppendUint32(a.b, ^uint32(0))
	a.nulls = true
	a.n++
}

// addNullable appends bytes, or a null if there are none; empty is not none.
func (a *array) addNullable(element []byte) {
	if element == nil {
		a.addNull()
		return
	}
	a.add(element)
}

// Value implements driver.Valuer.
func (a *array) Value() (driver.Value, error) {
	if a.nulls {
		binary.BigEndian.PutUint32(a.b[4:], 1)
	}
	binary.BigEndian.PutUint32(a.b[12:], uint32(a.n))
	return a.b, nil
}

// uuids is an array of executors' ids.
func uuids(ids ...records.ExecutorID) *array {
	a := newArray(oid.T_uuid, len(ids), 16)
	for _, id := range ids {
		a.add(id[:])
	}
	return a
}
