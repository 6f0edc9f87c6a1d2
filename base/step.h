/* Named steps: the places where a crash test kills the process. A build with -Dsteps=true reads
 *
 *   CAIRN_STEP_LOG=FILE        append the name of each step passed, a line each
 *   CAIRN_STEP_KILL=NAME:N     SIGKILL this process at the Nth passing (from 1) of NAME
 *   CAIRN_STEP_PAUSE=NAME:N:FILE   at the Nth passing of NAME create FILE.reached, then go on once
 *                              FILE exists (at most 60 s)
 *
 * and costs nothing in any other build. Thread-safe. */
#ifndef CAIRN_BASE_STEP_H
#define CAIRN_BASE_STEP_H

#ifdef CAIRN_STEPS
void step_pass(const char *name);
#define STEP(name) step_pass(name)
#else
#define STEP(name) ((void)0)
#endif

#endif
