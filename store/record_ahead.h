/* Who reads a file on in order is read ahead for. State of some files of a record; plain data,
 * guarded by the owner. */
#ifndef CAIRN_STORE_RECORD_AHEAD_H
#define CAIRN_STORE_RECORD_AHEAD_H

#include <stdint.h>

#define RECORD_AHEAD_FILES 16
#define RECORD_AHEAD_MIN   (1024u * 1024)
#define RECORD_AHEAD_MAX   (4u * 1024 * 1024)

struct record_ahead {
    struct record_ahead_file {
        uint32_t file; /* its number, plus 1; 0: none */
        uint32_t window;
        uint32_t run;   /* reads in a row that went on where the last one ended */
        uint64_t next;  /* chunk where the last read ended */
        uint64_t until; /* chunks before this were asked for */
    } files[RECORD_AHEAD_FILES];
};

/* Chunks first to last of a file are being read. What is to be read ahead of that, if anything: *n
 * chunks from *from on; the file may end before. Twice in a row a read must go on where the last
 * one ended, so that what is read at random costs nothing; then it is RECORD_AHEAD_MIN bytes, twice
 * that when half of it was used up, and so on up to RECORD_AHEAD_MAX. */
void record_ahead_step(struct record_ahead *a, uint32_t file, uint32_t chunk_size, uint64_t first,
                       uint64_t last, uint64_t *from, uint64_t *n);

#endif
