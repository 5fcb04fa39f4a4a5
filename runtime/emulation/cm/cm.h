/* What a source in C for Metal includes, for programs that are compiled here as they are. */
#include "../cm.h"
