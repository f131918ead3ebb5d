/* A libnvidia-ml.so.1 without a GPU: scripted waveforms behind the functions that samplers call.
 *
 * Configured by the environment variable NVML_STUB: words `key=value`, separated by blanks. A word `1.key=value` holds
 * for GPU 1 alone. Keys and defaults are in `defaults` below. All that a device does is a function of CLOCK_MONOTONIC,
 * so a test in another process knows the truth without asking: with busy_ms=200 idle_ms=300 phase_ms=0 the device is
 * busy while (t mod 500 ms) < 200 ms.
 *
 * The driver's habits that it copies: buffered samples are averages over one device period, stamped at its end, kept
 * in a ring; the gauge is the average of the last whole window; with no sample newer than asked for, NOT_FOUND.
 *
 * What it does not define answers NOT_SUPPORTED: nvml_stub.py appends those from the list of names in pynvml.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef long long i64;
typedef unsigned long long u64;

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, LOST = 15 };
enum { TYPE_DOUBLE = 0, TYPE_UINT = 1 };
enum { MAX_GPUS = 16 };

typedef struct { u64 total, free, used; } memory_t;
typedef struct { unsigned version; u64 total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { u64 stamp; union { double d; unsigned u; u64 whole; } value; } sample_t;
typedef struct { unsigned version, sensor; int temperature; } temperature_t;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; } pci_t;

typedef struct {
    i64 busy_ms, idle_ms, phase_ms, high, low;                     /* GPU utilisation, a square wave */
    i64 mem_busy_ms, mem_idle_ms, mem_phase_ms, mem_high, mem_low; /* memory utilisation, its own wave */
    i64 sample_us, ring, late_us, doubles; /* period of buffered samples, how many are kept, when they show, their type */
    i64 fewer;                             /* 1: the second call of the two-call protocol gives half of what was announced */
    i64 dry_idle, dry_from_ms, dry_to_ms;  /* 1: no samples while idle; no samples in a span after init */
    i64 absurd_every;                      /* every n-th sample and window says 900 % */
    i64 gauge_ms;                          /* window of the gauge */
    i64 lost_after_ms;                     /* the device falls off the bus so long after init */
    i64 offset_us;                         /* a device clock of its own */
    i64 memory_mb, used_mb, clock_mhz, power_mw, temperature_c;
    i64 index, mig;
    char domain[16];       /* wall, boot or mono: what a sample's stamp counts from */
    char unsupported[128]; /* of util,samples,memory,clock,power,temperature */
} device_t;

static device_t devices[MAX_GPUS];
static i64 gpus, init_code, init_count, init_ns, wall_us, boot_us;

#define ENTRY(key, value) { #key, offsetof(device_t, key), value }
static const struct { const char *key; size_t offset; i64 value; } defaults[] = {
    ENTRY(busy_ms, 200),    ENTRY(idle_ms, 300),      ENTRY(phase_ms, 0),
    ENTRY(high, 100),       ENTRY(low, 0),            ENTRY(mem_busy_ms, -1),
    ENTRY(mem_idle_ms, -1), ENTRY(mem_phase_ms, -1),  ENTRY(mem_high, 60),
    ENTRY(mem_low, 0),      ENTRY(sample_us, 5000),   ENTRY(ring, 120),
    ENTRY(late_us, 0),      ENTRY(doubles, 0),        ENTRY(fewer, 0),
    ENTRY(dry_idle, 0),     ENTRY(dry_from_ms, -1),   ENTRY(dry_to_ms, -1),
    ENTRY(absurd_every, 0), ENTRY(gauge_ms, 167),     ENTRY(lost_after_ms, -1),
    ENTRY(offset_us, 0),    ENTRY(memory_mb, 16384),  ENTRY(used_mb, 1024),
    ENTRY(clock_mhz, 1410), ENTRY(power_mw, 250000),  ENTRY(temperature_c, 61),
    ENTRY(mig, 0),
};
enum { DEFAULTS = sizeof defaults / sizeof *defaults };

static i64 *field(device_t *device, int entry) { return (i64 *)((char *)device + defaults[entry].offset); }

static i64 clock_ns(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (i64)now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void set(device_t *device, const char *key, const char *value) {
    for (int entry = 0; entry < DEFAULTS; entry++)
        if (!strcmp(key, defaults[entry].key)) {
            *field(device, entry) = atoll(value);
            return;
        }
    if (!strcmp(key, "domain")) snprintf(device->domain, sizeof device->domain, "%s", value);
    else if (!strcmp(key, "unsupported")) snprintf(device->unsupported, sizeof device->unsupported, "%s", value);
    else { /* a scenario with a spelling mistake must not pass as the default one */
        fprintf(stderr, "nvml_stub: unknown key %s\n", key);
        abort();
    }
}

static void configure(void) {
    const char *text = getenv("NVML_STUB");
    char *copy = strdup(text ? text : ""), *rest = copy, *word;
    gpus = 1;
    init_code = OK;
    for (int i = 0; i < MAX_GPUS; i++) {
        for (int entry = 0; entry < DEFAULTS; entry++) *field(&devices[i], entry) = defaults[entry].value;
        devices[i].index = i;
        strcpy(devices[i].domain, "wall");
        devices[i].unsupported[0] = 0;
    }
    while ((word = strsep(&rest, " \n"))) {
        char *value = strchr(word, '='), *dot = strchr(word, '.');
        if (!value) continue;
        *value++ = 0;
        if (!strcmp(word, "gpus")) gpus = atoll(value);
        else if (!strcmp(word, "init")) init_code = atoll(value);
        else if (dot && dot < value - 1 && atoi(word) < MAX_GPUS) set(&devices[atoi(word)], dot + 1, value);
        else for (int i = 0; i < MAX_GPUS; i++) set(&devices[i], word, value);
    }
    for (int i = 0; i < MAX_GPUS; i++) {
        device_t *device = &devices[i];
        if (device->mem_busy_ms < 0) device->mem_busy_ms = device->busy_ms;
        if (device->mem_idle_ms < 0) device->mem_idle_ms = device->idle_ms;
        if (device->mem_phase_ms < 0) device->mem_phase_ms = device->phase_ms;
    }
    free(copy);
}

/* ---- what the devices do ------------------------------------------------------------------------------------- */

/* Nanoseconds of (0, t] in which the wave is high. */
static i64 busy_until(i64 t, i64 busy_ns, i64 idle_ns) {
    i64 whole = t / (busy_ns + idle_ns), left = t % (busy_ns + idle_ns);
    return whole * busy_ns + (left < busy_ns ? left : busy_ns);
}

/* Average of the wave over (from, to], in percent. */
static double average(const device_t *device, int memory, i64 from, i64 to) {
    i64 busy = (memory ? device->mem_busy_ms : device->busy_ms) * 1000000;
    i64 idle = (memory ? device->mem_idle_ms : device->idle_ms) * 1000000;
    i64 shift = (memory ? device->mem_phase_ms : device->phase_ms) * 1000000;
    double high = memory ? device->mem_high : device->high, low = memory ? device->mem_low : device->low;
    if (busy + idle == 0 || to <= from) return low;
    double share = (double)(busy_until(to - shift, busy, idle) - busy_until(from - shift, busy, idle)) / (to - from);
    return low + share * (high - low);
}

static i64 since_init_ms(i64 t) { return (t - init_ns) / 1000000; }

static int is_lost(const device_t *device) {
    return device->lost_after_ms >= 0 && since_init_ms(clock_ns(CLOCK_MONOTONIC)) >= device->lost_after_ms;
}

static int is_unsupported(const device_t *device, const char *what) { return strstr(device->unsupported, what) != NULL; }

#define GATE(what)                                                        \
    device_t *device = (device_t *)handle;                                \
    if (!device) return INVALID_ARGUMENT;                                 \
    if (is_lost(device)) return LOST;                                     \
    if (is_unsupported(device, what)) return NOT_SUPPORTED

/* ---- NVML ---------------------------------------------------------------------------------------------------- */

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (init_count++) return (int)init_code; /* counted, as in NVML: a second user must not restart the script */
    configure();
    init_ns = clock_ns(CLOCK_MONOTONIC);
    /* Once: read at every call they would differ by a microsecond, and one sample would be stamped in two ways. */
    wall_us = (clock_ns(CLOCK_REALTIME) - init_ns) / 1000;
    boot_us = (clock_ns(CLOCK_BOOTTIME) - init_ns) / 1000;
    return (int)init_code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return init_count--, OK; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case OK: return "Success";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}

static int text(char *target, unsigned size, const char *value) {
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(target, value);
    return OK;
}
int nvmlSystemGetDriverVersion(char *target, unsigned size) { return text(target, size, "999.1.2"); }
int nvmlSystemGetNVMLVersion(char *target, unsigned size) { return text(target, size, "13.999.1.2"); }
int nvmlSystemGetCudaDriverVersion(int *version) { return *version = 13000, OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return *version = 13000, OK; }

int nvmlDeviceGetCount_v2(unsigned *count) { return *count = (unsigned)gpus, OK; }
int nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    if (index >= gpus) return INVALID_ARGUMENT;
    *handle = &devices[index];
    return OK;
}
int nvmlDeviceGetHandleByIndex(unsigned index, void **handle) { return nvmlDeviceGetHandleByIndex_v2(index, handle); }

static void uuid_of(const device_t *device, char *target) {
    sprintf(target, "GPU-5ca1ab1e-0000-4000-8000-%012llx", device->index);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    char own[64];
    for (int i = 0; i < gpus; i++) {
        uuid_of(&devices[i], own);
        if (!strcmp(uuid, own)) return *handle = &devices[i], OK;
        if (devices[i].mig && !strncmp(uuid, "MIG-", 4) && !strcmp(uuid + 4, own + 4)) return *handle = &devices[i], OK;
    }
    return NOT_FOUND;
}
int nvmlDeviceGetUUID(void *handle, char *target, unsigned size) {
    GATE("uuid");
    char own[64];
    uuid_of(device, own);
    return text(target, size, own);
}
int nvmlDeviceGetName(void *handle, char *target, unsigned size) {
    GATE("name");
    return text(target, size, "Stub GPU");
}
int nvmlDeviceGetIndex(void *handle, unsigned *index) {
    GATE("index");
    return *index = (unsigned)device->index, OK;
}
int nvmlDeviceGetPciInfo_v3(void *handle, pci_t *pci) {
    GATE("pci");
    memset(pci, 0, sizeof *pci);
    pci->bus = (unsigned)device->index + 1;
    sprintf(pci->text, "00000000:%02X:00.0", pci->bus);
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
    return OK;
}
int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    GATE("migmode");
    return *current = *pending = (unsigned)device->mig, OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, void *found) {
    GATE("processes");
    (void)found;
    return *count = 0, OK;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, void *found) {
    return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, found);
}

int nvmlDeviceGetMemoryInfo(void *handle, memory_t *memory) {
    GATE("memory");
    memory->total = (u64)device->memory_mb << 20;
    memory->used = (u64)device->used_mb << 20;
    memory->free = memory->total - memory->used;
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2_t *memory) {
    GATE("memory");
    memory->total = (u64)device->memory_mb << 20;
    memory->used = (u64)device->used_mb << 20;
    memory->reserved = 0;
    memory->free = memory->total - memory->used;
    return OK;
}
int nvmlDeviceGetClockInfo(void *handle, unsigned type, unsigned *mhz) {
    GATE("clock");
    (void)type;
    return *mhz = (unsigned)device->clock_mhz, OK;
}
int nvmlDeviceGetMaxClockInfo(void *handle, unsigned type, unsigned *mhz) {
    return nvmlDeviceGetClockInfo(handle, type, mhz);
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned *mw) {
    GATE("power");
    return *mw = (unsigned)device->power_mw, OK;
}
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *mw) {
    GATE("power");
    return *mw = 400000, OK;
}
int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *celsius) {
    GATE("temperature");
    (void)sensor;
    return *celsius = (unsigned)device->temperature_c, OK;
}
int nvmlDeviceGetTemperatureV(void *handle, temperature_t *found) {
    GATE("temperature");
    found->temperature = (int)device->temperature_c;
    return OK;
}

int nvmlDeviceGetUtilizationRates(void *handle, utilization_t *found) {
    GATE("util");
    i64 width = device->gauge_ms * 1000000, end = clock_ns(CLOCK_MONOTONIC) / width * width;
    found->gpu = (unsigned)(average(device, 0, end - width, end) + 0.5);
    found->memory = (unsigned)(average(device, 1, end - width, end) + 0.5);
    if (device->absurd_every && end / width % device->absurd_every == 0) found->gpu = 900;
    return OK;
}

int nvmlDeviceGetSamples(void *handle, unsigned type, u64 last, unsigned *value_type, unsigned *count, sample_t *found) {
    GATE("samples");
    if (is_unsupported(device, "util") || (type != 1 && type != 2)) return NOT_SUPPORTED;
    i64 now = clock_ns(CLOCK_MONOTONIC), period = device->sample_us * 1000, zero_us = device->offset_us;
    if (!strcmp(device->domain, "wall")) zero_us += wall_us;
    if (!strcmp(device->domain, "boot")) zero_us += boot_us;
    *value_type = device->doubles ? TYPE_DOUBLE : TYPE_UINT;
    if (!found) return *count = (unsigned)device->ring, OK; /* as the driver: how large a buffer could be needed */
    i64 newest = (now - device->late_us * 1000) / period;
    unsigned room = *count, given = 0;
    for (i64 k = newest - device->ring + 1; k <= newest && given < room; k++) {
        i64 end = k * period, start = end - period, ms = since_init_ms(end);
        u64 stamp = (u64)(end / 1000 + zero_us);
        double value = average(device, type == 2, start, end);
        if (stamp <= last) continue;
        if (device->dry_idle && value <= (type == 2 ? device->mem_low : device->low)) continue;
        if (device->dry_from_ms >= 0 && ms >= device->dry_from_ms && ms < device->dry_to_ms) continue;
        if (device->absurd_every && k % device->absurd_every == 0) value = 900;
        found[given].value.whole = 0xdeadbeefdeadbeefULL; /* a union: what the type does not cover is garbage */
        if (device->doubles) found[given].value.d = value;
        else found[given].value.u = (unsigned)(value + 0.5);
        found[given++].stamp = stamp;
    }
    if (device->fewer) given = (given + 1) / 2;
    *count = given;
    return given ? OK : NOT_FOUND;
}
