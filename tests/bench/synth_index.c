/* Fill a store's chunk index with chunks of packs that are not there: how look-ups and inserts
 * grow.
 *
 *   synth_index DIR STATE CHUNKS
 *
 * DIR is a store (cairn init), STATE its state directory. A publish that met one of these chunks
 * would store it again; none has such a SHA-256. */
#include "base/util.h"
#include "store/index.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>

#define PER_PACK 1000

static void die(const char *what, const struct cairn_error *err)
{
    fprintf(stderr, "synth_index: %s: %s\n", what, err->message);
    exit(1);
}

/* Spread over the whole key space, as real sums are. */
static uint64_t mixed(uint64_t n)
{
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9u;
    n = (n ^ (n >> 27)) * 0x94d049bb133111ebu;
    return n ^ (n >> 31);
}

static void add_pack(struct index *x, uint64_t pack)
{
    static struct pack_entry entries[PER_PACK];
    struct cairn_error err;
    uint8_t name[PACK_ID_LEN];
    put_le64(name, mixed(pack + 1));
    put_le64(name + 8, pack);
    for (uint32_t i = 0; i < PER_PACK; i++) {
        struct pack_entry *e = &entries[i];
        *e = (struct pack_entry){
            .offset = 4096 + i * 65536u, .stored_len = 65536, .plain_len = 65536};
        for (int k = 0; k < 4; k++)
            put_le64(e->sha + 8 * k, mixed(4 * (pack * PER_PACK + i) + (uint64_t)k + 7));
    }
    if (index_add_pack(x, name, entries, PER_PACK, &err))
        die("adding a pack", &err);
}

int main(int argc, char **argv)
{
    struct cairn_error err;
    struct cairn_store *s;
    if (argc != 4) {
        fprintf(stderr, "usage: synth_index DIR STATE CHUNKS\n");
        return 2;
    }
    struct cairn_config config = {.store = argv[1], .state = argv[2]};
    if (cairn_open(&config, NULL, &s, &err))
        die(argv[1], &err);
    if (!s->index) {
        fprintf(stderr, "synth_index: %s: no index\n", argv[2]);
        return 1;
    }
    uint64_t packs = strtoull(argv[3], NULL, 10) / PER_PACK;
    for (uint64_t i = 0; i < packs; i++)
        add_pack(s->index, i);
    cairn_close(s);
    return 0;
}
