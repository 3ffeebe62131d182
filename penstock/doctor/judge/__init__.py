"""From a recording to a verdict and advice."""
