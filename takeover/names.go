package takeover

import "fmt"

var (
	actionNames = []string{
		"reread", "reserve", "replay", "refuse", "answer unknown", "answer in progress", "claim unknown", "join",
		"probe", "watch", "confirm", "fence probed", "fence stale", "take over", "take over signed", "pause",
	}
	recoveryNames = []string{"give up", "ask", "ask later", "finish", "execute", "free"}
	holderNames   = []string{"another", "here", "orphaned"}
	evidenceNames = []string{"not_asked", "running", "not_running", "replaced", "failed", "confirmed_dead", "doubted"}
)

func (a Action) String() string         { return nameOf(actionNames, int(a)) }
func (a RecoveryAction) String() string { return nameOf(recoveryNames, int(a)) }
func (h Holder) String() string         { return nameOf(holderNames, int(h)) }
func (e Evidence) String() string       { return nameOf(evidenceNames, int(e)) }

func nameOf(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprintf("invalid(%d)", i)
	}
	return names[i]
}
