/* Shifts the wall clock of a process by the seconds in the file CLOCK_SHIFT_FILE (a 64-bit integer), which may change at any
   time. Preloaded by the tests of clock jumps. The monotonic clock is left alone, as when an administrator sets the time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *shift;

__attribute__((constructor)) static void open_shift(void) {
    const char *path = getenv("CLOCK_SHIFT_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *found = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED)
        shift = found;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *out) {
    int result = (int)syscall(SYS_clock_gettime, id, out);
    if (result == 0 && shift && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        out->tv_sec += *shift;
    return result;
}

int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
