/* Pins: pins/<node>/<nonce> keeps a generation, and the packs that it needs, from the collector
 * while somebody holds it (an open file on a mount, the lease of a fetch, a manifest that is being
 * replaced). A pin is alive as long as its holder puts it again: one whose object is older than
 * twice the grace, by the store's clock, has lost its holder. So it is to be put again every
 * quarter of the grace.
 *
 * Plain data, not thread-safe. */
#ifndef CAIRN_STORE_PIN_H
#define CAIRN_STORE_PIN_H

#include "store/pack_set.h"
#include "store/store.h"

#define PIN_MAX ((size_t)64 * 1024 * 1024)

struct pin {
    char key[KEY_MAX];
    char id[ID_MAX + 1], gen[GEN_TEXT];
    struct pack_set packs; /* owned; may be empty: then only the generation is named */
};

void pin_release(struct pin *p); /* of the memory; the object stays */
#define CLEANUP_PIN __attribute__((cleanup(pin_release)))

/* Name this process's node: 128 random bits kept in <state>/<store id>/node, made if absent. A
 * store without a state folder gets a name of its own each time. */
CAIRN_MUST_CHECK int pin_node(const struct cairn_store *s, char node[LAYOUT_NODE_TEXT],
                              struct cairn_error *err);

/* *out is a new pin on (id, gen) without packs, not stored yet, under a fresh nonce. */
CAIRN_MUST_CHECK int pin_init(struct pin *out, const char *node, const char *id, const char *gen,
                              struct cairn_error *err);
/* Store it, or store it again to show that the holder lives. */
CAIRN_MUST_CHECK int pin_put(struct cairn_store *s, const struct cairn_op *op, const struct pin *p,
                             struct cairn_error *err);
/* not_found: it is gone. corrupt: it is not a pin, with its key. */
CAIRN_MUST_CHECK int pin_get(struct cairn_store *s, const struct cairn_op *op, const char *key,
                             struct pin *out, struct cairn_error *err);
/* Absent is success. */
CAIRN_MUST_CHECK int pin_remove(struct cairn_store *s, const struct cairn_op *op,
                                const struct pin *p, struct cairn_error *err);

#endif
