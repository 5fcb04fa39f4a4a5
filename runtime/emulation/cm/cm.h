/* Included by sources in C for Metal, so that they compile here unchanged. */
#include "../cm.h"
