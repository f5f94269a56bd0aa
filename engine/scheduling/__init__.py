"""Selection of the sequences of a step: fairness, slots, preemption, deadlines, load shedding."""
