// The C++ library asks glibc, from 2.32 on, whether there is only one thread, and if so spares atomic
// operations. Where it is linked into qc's library, this answer serves instead, so that older versions of
// glibc load it.
extern "C" __attribute__((visibility("hidden"))) char __libc_single_threaded;
char __libc_single_threaded = 0;
