/* The life of a pack: open, closed, dead, deleted; never back. gc/closed/<pack> and gc/dead/<pack>
 * are its states, and their times are when it entered them. */
#ifndef CAIRN_GC_PACKS_H
#define CAIRN_GC_PACKS_H

#include "gc/roots.h"

/* Delete what is dead and due. First of all that a sweep does: it gives space back and needs none.
 */
CAIRN_MUST_CHECK int packs_delete(struct gc_run *run, const struct roots *r,
                                  struct cairn_error *err);
/* Write the marks that are due, take away those of packs that are gone. */
CAIRN_MUST_CHECK int packs_mark(struct gc_run *run, const struct roots *r, struct cairn_error *err);
/* Close one pack, for whatever reason. */
CAIRN_MUST_CHECK int packs_close(struct gc_run *run, const struct roots_pack *p, const char *why,
                                 struct cairn_error *err);
/* What of the result is a state and no event: packs that wait, and until when. */
void packs_count(struct gc_run *run, const struct roots *r);

#endif
