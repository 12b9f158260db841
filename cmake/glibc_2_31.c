/* SPDX-License-Identifier: Apache-2.0
 *
 * What the static libraries of g++ 12 ask of a C library that is newer than 2.31, for programs that are to run with
 * that one (scripts/package_benchmarks.py): whether there is one thread, random bits, and where an address' unwind
 * tables are. */
#define _GNU_SOURCE
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/random.h>

char __libc_single_threaded = 0; /* never said, so that reference counts are always atomic */

uint32_t arc4random(void) {
  uint32_t value;
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}

struct search {
  uintptr_t address;
  struct dl_find_object* found;
};

/* Whether the address is in the object, so that the search ends. */
static int look_in(struct dl_phdr_info* object, size_t size, void* data) {
  const struct search* search = data;
  void* tables = NULL;
  int is_inside = 0;
  (void)size;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_GNU_EH_FRAME) tables = (void*)begin;
    if (part->p_type != PT_LOAD || search->address - begin >= part->p_memsz) continue;
    is_inside = 1;
    search->found->dlfo_map_start = (void*)begin;
    search->found->dlfo_map_end = (void*)(begin + part->p_memsz);
  }
  if (is_inside) search->found->dlfo_eh_frame = tables;
  return is_inside;
}

int _dl_find_object(void* address, struct dl_find_object* result) {
  struct search search = {(uintptr_t)address, result};
  *result = (struct dl_find_object){0};
  dl_iterate_phdr(look_in, &search);
  return result->dlfo_eh_frame != NULL ? 0 : -1;
}
