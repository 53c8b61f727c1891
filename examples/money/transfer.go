package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/jmoiron/sqlx"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
)

// bank keeps accounts.
type bank struct {
	db   *sqlx.DB
	join *postgres.Join
}

// order is what a client asks for.
type order struct {
	From   int64 `json:"from"`
	To     int64 `json:"to"`
	Amount int64 `json:"amount"`
}

var (
	errPoor   = errors.New("not enough money")
	errNobody = errors.New("no such account")
)

// transfer moves money: the transaction that moves it stores the answer, too.
// An error leaves nothing behind, and is answered as it would be anywhere.
func (b *bank) transfer(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Amount <= 0 || o.From == o.To {
		http.Error(w, "want two accounts and an amount", http.StatusBadRequest)
		return
	}
	err := b.join.FinalizeTx(r.Context(), func(ctx context.Context, tx *sqlx.Tx) (records.Response, error) {
		number, err := move(ctx, tx, o)
		if err != nil {
			return records.Response{}, err
		}
		return records.Response{
			Status:  http.StatusCreated,
			Headers: []records.Header{{Name: "Content-Type", Value: "application/json"}},
			Body:    fmt.Appendf(nil, `{"transfer": %d}`, number),
		}, nil
	})
	switch {
	case err == nil: // the client gets that response
	case errors.Is(err, errPoor), errors.Is(err, errNobody):
		http.Error(w, err.Error(), http.StatusConflict) // which is an answer, and stored
	default:
		http.Error(w, "not now", http.StatusInternalServerError) // the node finds out
	}
}

// move is a transfer as one would write it without Probate. It locks accounts
// in order, so that two transfers do not wait for each other.
func move(ctx context.Context, tx *sqlx.Tx, o order) (number int64, err error) {
	if _, err := tx.ExecContext(ctx, `SELECT FROM accounts WHERE id IN ($1, $2) ORDER BY id FOR UPDATE`, o.From, o.To); err != nil {
		return 0, err
	}
	balance, err := add(ctx, tx, o.From, -o.Amount)
	if err != nil {
		return 0, err
	}
	if balance < 0 {
		return 0, errPoor
	}
	if _, err := add(ctx, tx, o.To, o.Amount); err != nil {
		return 0, err
	}
	err = tx.GetContext(ctx, &number, `INSERT INTO transfers (from_account, to_account, amount) VALUES ($1, $2, $3) RETURNING number`, o.From, o.To, o.Amount)
	return number, err
}

// add changes an account that there is.
func add(ctx context.Context, tx *sqlx.Tx, account, amount int64) (balance int64, err error) {
	err = tx.GetContext(ctx, &balance, `UPDATE accounts SET balance = balance + $2 WHERE id = $1 RETURNING balance`, account, amount)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, errNobody
	}
	return balance, err
}

// prepare makes ten accounts with 1,000 each. Processes that start at once wait
// for each other.
func prepare(ctx context.Context, db *sqlx.DB) error {
	_, err := db.ExecContext(ctx, `
BEGIN;
SELECT pg_advisory_xact_lock(20260101);
CREATE TABLE IF NOT EXISTS accounts (id bigint PRIMARY KEY, balance bigint NOT NULL);
CREATE TABLE IF NOT EXISTS transfers (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, from_account bigint NOT NULL, to_account bigint NOT NULL, amount bigint NOT NULL);
INSERT INTO accounts SELECT n, 1000 FROM generate_series(1, 10) n ON CONFLICT DO NOTHING;
COMMIT`)
	if err != nil {
		return fmt.Errorf("prepare tables: %w", err)
	}
	return nil
}
