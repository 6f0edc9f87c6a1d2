/* Functions that cannot be used safely, made compile errors. Included before every file. */
#ifndef CAIRN_BASE_BANNED_H
#define CAIRN_BASE_BANNED_H

/* The headers that declare or use these names come first: a poisoned name may not appear later. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf gets strtok gmtime localtime     \
    ctime asctime atoi tmpnam mktemp

#endif
