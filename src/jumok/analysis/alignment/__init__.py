"""Word alignments: from attention, from text alone, and their error rate."""
