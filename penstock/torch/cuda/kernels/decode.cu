// All kernels, in the order in which they run.

#include "entropy.h"
#include "coefficients.h"
#include "idct.h"
#include "color.h"
#include "resize.h"
#include "rows.h"
#include "augment.h"
#include "neighbours.h"
#include "mix.h"
