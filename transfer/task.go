package transfer

import (
	"encoding/json"
	"fmt"

	"github.com/probate-dev/probate/records"
)

// Task is what a flow's row and its record keep of the messages: all that any
// node needs to do the work, without who asked for it.
type Task struct {
	Start   *Message     `json:"start,omitempty"`
	Prepare *Message     `json:"prepare,omitempty"`
	Address *DataAddress `json:"address,omitempty"` // of a later message, which replaces the one of Start
	// Slot is the only place where the work can be done: an end of it is on a
	// disk that others do not share. Empty: anywhere.
	Slot string `json:"slot,omitempty"`
}

// message is the one that says most.
func (t Task) message() *Message {
	if t.Start != nil {
		return t.Start
	}
	return t.Prepare
}

// Destination is where bytes are to go, or to be had.
func (t Task) Destination() *DataAddress {
	if t.Address != nil {
		return t.Address
	}
	if t.Start != nil {
		return t.Start.DataAddress
	}
	return nil
}

// Dataset is what is moved.
func (t Task) Dataset() string { return t.message().DatasetID }

func (t Task) bytes() ([]byte, error) { return json.Marshal(t) }

// taskOf reads a task back.
func taskOf(raw []byte) (Task, error) {
	var t Task
	if err := json.Unmarshal(raw, &t); err != nil || t.message() == nil {
		return Task{}, fmt.Errorf("read the task of a flow: %w: %w", records.ErrCorrupt, err)
	}
	return t, nil
}

// sameStart reports whether m asks for what this task does already.
func (t Task) sameStart(m *Message) bool {
	if t.Start != nil {
		return t.Start.fingerprint(true) == m.fingerprint(true)
	}
	return t.Prepare.fingerprint(false) == m.fingerprint(false)
}

// Realm and operation of the records under which bytes move. The principal
// keeps a client's key from ever being one of them.
const (
	realm     = "dataflow"
	principal = "probate/dataflow/v1"
	operation = "dataflow"
)

func keyOf(id string) records.Key { return records.Key{Realm: realm, Principal: principal, Key: id} }
