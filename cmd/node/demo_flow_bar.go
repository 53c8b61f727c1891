package main

import "strings"

// bar shows how far a copy is: drawn over and over in the last line of a
// terminal, or told now and then where there is none.
type bar struct {
	w     *text // nil: nobody watches
	drawn bool  // w is a terminal
	total int64

	there bool  // it stands in the last line
	told  int64 // tenths
}

const barWidth = 40

// at notes how far the copy is, and draws that. It reports whether that is to
// be told instead.
func (b *bar) at(done int64, who string) (tell bool) {
	done = min(done, b.total)
	if !b.drawn {
		tenths := 10 * done / b.total
		tell, b.told = tenths > b.told, max(tenths, b.told)
		return tell
	}
	full := int(barWidth * done / b.total)
	b.w.printf("\r\x1b[K%s [%s%s] %3d %%  %s of %s", who, strings.Repeat("#", full), strings.Repeat("·", barWidth-full),
		100*done/b.total, megabytes(done), megabytes(b.total))
	b.there = true
	return false
}

// clear makes room for other lines.
func (b *bar) clear() {
	if b.there {
		b.w.printf("\r\x1b[K")
		b.there = false
	}
}
