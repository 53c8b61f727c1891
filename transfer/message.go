package transfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/probate-dev/probate/records"
)

// Message asks for a flow: the start and the prepare message of Data Plane
// Signaling 1.0, of which older control planes send some members under another
// name. Members that are not known are ignored, as the specification wants.
type Message struct {
	MessageID        string          `json:"messageId"`
	ParticipantID    string          `json:"participantId"`
	CounterPartyID   string          `json:"counterPartyId"`
	DataspaceContext string          `json:"dataspaceContext"`
	ProcessID        string          `json:"processId"`
	AgreementID      string          `json:"agreementId"`
	DatasetID        string          `json:"datasetId"`
	Profile          string          `json:"profile"`
	CallbackAddress  string          `json:"callbackAddress,omitempty"`
	Trackable        *bool           `json:"trackable,omitempty"`
	Claims           json.RawMessage `json:"claims,omitempty"`
	Labels           []string        `json:"labels,omitempty"`
	Metadata         map[string]any  `json:"metadata,omitempty"`
	DataAddress      *DataAddress    `json:"dataAddress,omitempty"`

	// TransferType is what EDC 0.16 to 0.18 call the profile, and DataFlowID
	// what later drafts call the processId. Both are folded in when a message
	// is read.
	TransferType string `json:"transferType,omitempty"`
	DataFlowID   string `json:"dataFlowId,omitempty"`
}

// DataAddress says where an end of a flow is, and how to be let in.
type DataAddress struct {
	Type         string             `json:"@type,omitempty"`
	EndpointType string             `json:"endpointType"`
	Endpoint     string             `json:"endpoint,omitempty"`
	Properties   []EndpointProperty `json:"endpointProperties,omitempty"`
}

// EndpointProperty is one more word about an endpoint.
type EndpointProperty struct {
	Type  string `json:"@type,omitempty"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Property is the value of a property, or "".
func (a *DataAddress) Property(name string) string {
	if a == nil {
		return ""
	}
	for _, p := range a.Properties {
		if strings.EqualFold(p.Name, name) {
			return p.Value
		}
	}
	return ""
}

// Direction is who moves the bytes: a provider pushes them, a consumer pulls.
type Direction string

// Directions.
const (
	Push Direction = "push"
	Pull Direction = "pull"
)

// direction is the last word of a profile, such as …/profile/http-push or
// HttpData-PULL.
func direction(profile string) (Direction, error) {
	last := profile[strings.LastIndex(profile, "-")+1:]
	switch d := Direction(strings.ToLower(last)); d {
	case Push, Pull:
		return d, nil
	}
	return "", fmt.Errorf("profile %q ends neither in -push nor in -pull", profile)
}

// maxMessageBytes bounds what is read of a request.
const maxMessageBytes = records.MaxFlowMessageBytes / 2

// invalid is a message that can never be carried out, and why.
type invalid struct{ faults []error }

func (i *invalid) Error() string { return errors.Join(i.faults...).Error() }

// decode reads one JSON object, and nothing after it.
func decode(r io.Reader, into any) error {
	raw, err := io.ReadAll(io.LimitReader(r, maxMessageBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the message: %w", err)
	case len(raw) > maxMessageBytes:
		return &invalid{[]error{fmt.Errorf("message over %d bytes", maxMessageBytes)}}
	case !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")):
		return &invalid{[]error{errors.New("want a JSON object")}}
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return &invalid{[]error{fmt.Errorf("not the JSON of such a message: %w", err)}}
	}
	return nil
}

// readMessage reads a start or a prepare message and reports every fault.
func readMessage(r io.Reader) (Message, error) {
	var m Message
	if err := decode(r, &m); err != nil {
		return Message{}, err
	}
	if faults := m.fold(); len(faults) > 0 {
		return Message{}, &invalid{faults}
	}
	return m, nil
}

// fold brings both dialects into one form and checks it.
func (m *Message) fold() (faults []error) {
	fold := func(name string, into *string, old, other string) {
		switch {
		case *into == "":
			*into = other
		case other != "" && other != *into:
			faults = append(faults, fmt.Errorf("%s and %s differ", name, old))
		}
	}
	fold("profile", &m.Profile, "transferType", m.TransferType)
	fold("processId", &m.ProcessID, "dataFlowId", m.DataFlowID)
	m.TransferType, m.DataFlowID = "", ""
	for _, required := range []struct{ name, value string }{
		{"messageId", m.MessageID},
		{"participantId", m.ParticipantID},
		{"counterPartyId", m.CounterPartyID},
		{"dataspaceContext", m.DataspaceContext},
		{"processId", m.ProcessID},
		{"agreementId", m.AgreementID},
		{"datasetId", m.DatasetID},
		{"profile", m.Profile},
	} {
		switch {
		case required.value == "":
			faults = append(faults, fmt.Errorf("%s: missing", required.name))
		case len(required.value) > 2048 || strings.ContainsRune(required.value, 0):
			faults = append(faults, fmt.Errorf("%s: want at most 2,048 bytes without NUL", required.name))
		}
	}
	if m.ProcessID != "" && !records.ValidFlowID(m.ProcessID) {
		faults = append(faults, errors.New("processId: want 1 to 255 bytes without control characters"))
	}
	if m.ProcessID == "." || m.ProcessID == ".." {
		faults = append(faults, errors.New("processId: is no step of a path"))
	}
	if m.Profile != "" {
		if _, err := direction(m.Profile); err != nil {
			faults = append(faults, err)
		}
	}
	if len(m.Claims) > 0 && !bytes.HasPrefix(bytes.TrimSpace(m.Claims), []byte("{")) && string(m.Claims) != "null" {
		faults = append(faults, errors.New("claims: want an object"))
	}
	if err := checkURL(m.CallbackAddress); err != nil {
		faults = append(faults, fmt.Errorf("callbackAddress: %w", err))
	}
	if strings.Contains(m.CallbackAddress, "?") { // addresses begin with it; and it is stored as it is, so no place for a secret
		faults = append(faults, errors.New("callbackAddress: has a query"))
	}
	return append(faults, m.DataAddress.check()...)
}

// checkURL accepts no address, or an absolute one over HTTP.
func checkURL(raw string) error {
	if raw == "" {
		return nil
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || len(raw) > 2048:
		return errors.New("not a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("want an absolute URL over http or https")
	case u.User != nil || u.Fragment != "" || strings.Contains(u.Path, ".."):
		return errors.New("has userinfo, a fragment or a step upwards")
	}
	return nil
}

func (a *DataAddress) check() (faults []error) {
	if a == nil {
		return nil
	}
	if a.EndpointType == "" {
		faults = append(faults, errors.New("dataAddress: endpointType: missing"))
	}
	if len(a.Endpoint) > 2048 {
		faults = append(faults, errors.New("dataAddress: endpoint: over 2,048 bytes"))
	}
	for _, p := range a.Properties {
		if p.Name == "" {
			faults = append(faults, errors.New("dataAddress: endpointProperties: one has no name"))
		}
	}
	return faults
}

// direction of a message that was checked.
func (m *Message) direction() Direction {
	d, _ := direction(m.Profile) // checked by fold
	return d
}

// tracked: unless it says otherwise.
func (m *Message) tracked() bool { return m.Trackable == nil || *m.Trackable }

// fingerprint identifies what is asked: everything but the message's own id,
// where callbacks go, and secrets, which may be fresh in a repeat. Without the
// address it identifies what was prepared and is now started.
func (m *Message) fingerprint(withAddress bool) records.Fingerprint {
	parts := []string{
		m.ParticipantID, m.CounterPartyID, m.DataspaceContext, m.ProcessID, m.AgreementID, m.DatasetID, m.Profile,
		fmt.Sprint(m.tracked()), canonical(m.Claims), canonical(m.Labels), canonical(m.Metadata),
	}
	if withAddress {
		parts = append(parts, m.DataAddress.place()...)
	}
	return records.FingerprintOf(parts...)
}

// place is where an address points, without what lets somebody in there.
func (a *DataAddress) place() []string {
	if a == nil {
		return nil
	}
	var open []string
	for _, p := range a.Properties {
		if !secret(p.Name) {
			open = append(open, canonical([]string{p.Name, p.Value}))
		}
	}
	slices.Sort(open)
	return append([]string{a.EndpointType, a.Endpoint}, open...)
}

// secret reports whether a property of that name lets somebody in. An object's
// key does not: it is a name.
func secret(name string) bool {
	name = strings.ToLower(name)
	if name == "keyname" || name == "keyprefix" {
		return false
	}
	for _, part := range []string{"auth", "token", "secret", "password", "credential", "key"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// canonical is JSON in which members are in order and what is empty is absent.
func canonical(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var plain any
	if d.Decode(&plain) != nil {
		return ""
	}
	switch v := plain.(type) { // what is empty may not be there when it is read again
	case nil:
		return ""
	case map[string]any:
		if len(v) == 0 {
			return ""
		}
	case []any:
		if len(v) == 0 {
			return ""
		}
	}
	raw, _ = json.Marshal(plain) // it was JSON a moment ago
	return string(raw)
}

// command is what is said about a flow that exists.
type command struct {
	MessageID   string       `json:"messageId"`
	Reason      string       `json:"reason"`
	DataAddress *DataAddress `json:"dataAddress"`
}

// readCommand reads what started, suspend, resume and terminate carry.
func readCommand(r io.Reader) (command, error) {
	var c command
	if err := decode(r, &c); err != nil {
		return command{}, err
	}
	faults := c.DataAddress.check()
	if c.MessageID == "" {
		faults = append(faults, errors.New("messageId: missing"))
	}
	if len(faults) > 0 {
		return command{}, &invalid{faults}
	}
	return c, nil
}

// readEmpty accepts no body, and an object of any members.
func readEmpty(r io.Reader) error {
	raw, err := io.ReadAll(io.LimitReader(r, maxMessageBytes+1))
	if err != nil {
		return fmt.Errorf("read the message: %w", err)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	var any map[string]json.RawMessage
	return decode(bytes.NewReader(raw), &any)
}
