// Package sealed keeps what a store holds about requests and answers from
// those who can read the store but have no key.
//
// # Promises
//
// [Sealer.Over] wraps any [records.Store] and is one, with the same contract:
// response bodies and stored requests go into it sealed and come out of it
// open. It seals with XChaCha20-Poly1305 under the first of its [Keys] and a
// random nonce, which at 24 bytes needs no counting, and opens with any of
// them. Without keys it seals nothing and copies nothing.
//
// [Sealer.Seal] is for a write that goes past the store, such as that of a
// postgres.Join, which is to have it whether there are keys or not.
// [Sealer.OverFlows] does for data flows what Over does for records: it seals
// their messages, and the bodies of callbacks that wait to be delivered.
//
// What was sealed is bound to where it belongs: a body to its record and to
// the epoch that finalized it, a stored request to its record. A request is
// sealed before the store has given the claim its epoch, and stays as it is
// when take-overs raise that, so no epoch can be part of its bond. A callback is
// bound to its flow, its event and the address to which it goes.
//
// A value that cannot be opened is [records.ErrSealed], an error in the log and
// a call of Config.Unsealable: because there is no such key here, or because
// the value was altered, cut short, or moved from elsewhere. Its bytes are
// returned to nobody, and a record is not handed on without them: nobody
// executes anything for it, and it stays as it is until the key is back or an
// operator decides. A listing and an operator are not stopped by it: they get
// the rest of the record. A callback is handed on without its body and marked,
// so that who delivers callbacks puts it off, and the others are not held up.
//
// Values from before there were keys are read as they are, so keys can be
// turned on over a store with records. A value that is stored open and begins
// as a sealed one does is marked as open, so it cannot be taken for one.
//
// # Not promised
//
// Ids, realms, keys, operations, resources, status and headers are stored
// open. Who can write the store can put an open value in the place of a sealed
// one, or a stored request of the same record in the place of a later one. A
// response in the memory of a node is open.
//
// # Imports
//
// Package records and golang.org/x/crypto.
//
// # Reading order
//
// keys.go, envelope.go (the stored form), sealer.go, store.go, operator.go,
// flows.go.
package sealed
