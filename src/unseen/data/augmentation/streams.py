"""Which random numbers of an image's key belong to what: no two uses share a stream.

Stream 0 is that of crop and colour, streams from 1 on are those of methods (masks, splits), and
augmentations that came later count from 1000 on.
"""

CROP_AND_COLOUR = 0
RANDAUGMENT = 1000
RANDOM_CONVOLUTION = 1001
RANDOM_FILTERS = 1002
AMPLITUDE_MIX = 1003
PARTNERS = 1004
ERASING = 1005
VIEWS = 1006
FIRST_MIXSTYLE = 1007  # one for each stage
