/* Starting the threads of a library. */
#ifndef CAIRN_BASE_THREAD_H
#define CAIRN_BASE_THREAD_H

#include <pthread.h>

/* pthread_create with every signal blocked in the new thread: signals belong to the program's own
 * threads. Returns 0 or an errno. Thread-safe. */
int thread_start(pthread_t *out, void *(*run)(void *arg), void *arg);

#endif
