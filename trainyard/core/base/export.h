// What libtrainyard.so shows: everything is compiled with -fvisibility=hidden, and a public header shows what it
// declares between these two. Templates and inline functions are shown likewise, so that a program and the library
// agree on one copy.
#pragma once

#define TRAINYARD_EXPORT_BEGIN _Pragma("GCC visibility push(default)")
#define TRAINYARD_EXPORT_END _Pragma("GCC visibility pop")
