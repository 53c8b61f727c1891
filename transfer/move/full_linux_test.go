package move_test

func fillUp(o order) int { return 0 }
