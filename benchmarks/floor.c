/* The floor: step through the columns that a report reads, in C, and do nothing with them.
   Built without SQLite's headers, so that only its library need be there.
   cc -O2 -o floor floor.c -ldl;  ./floor trace.sqlite "SELECT ..."  */
#include <dlfcn.h>
#include <stdio.h>

enum { SQLITE_ROW = 100, SQLITE_OPEN_READONLY = 1, SQLITE_NULL = 5 };

int main(int argc, char **argv) {
  void *lib = dlopen("libsqlite3.so.0", RTLD_NOW);
  if (argc != 3 || !lib) return 2;
  int (*open_v2)(const char *, void **, int, const char *) = dlsym(lib, "sqlite3_open_v2");
  int (*prepare)(void *, const char *, int, void **, const char **) =
      dlsym(lib, "sqlite3_prepare_v2");
  int (*step)(void *) = dlsym(lib, "sqlite3_step");
  int (*columns)(void *) = dlsym(lib, "sqlite3_column_count");
  int (*type)(void *, int) = dlsym(lib, "sqlite3_column_type");
  long long (*value)(void *, int) = dlsym(lib, "sqlite3_column_int64");
  void *db, *query;
  if (open_v2(argv[1], &db, SQLITE_OPEN_READONLY, 0)) return 3;
  if (prepare(db, argv[2], -1, &query, 0)) return 4;
  long long rows = 0, sum = 0;
  int width = columns(query);
  while (step(query) == SQLITE_ROW) {
    for (int i = 0; i < width; i++)
      if (type(query, i) != SQLITE_NULL) sum += value(query, i);
    rows++;
  }
  printf("%lld rows, checksum %lld\n", rows, sum);
  return 0;
}
