"""Which sequences enter a step: fairness, slots, preemption, deadlines, load shedding."""
