// Selects the symbols that libtrainyard.so exports. Everything is compiled with -fvisibility=hidden; a public header
// exports what it declares between these two macros. Templates and inline functions are exported, too, so that a
// program and the library use the same copy.
#pragma once

#define TRAINYARD_EXPORT_BEGIN _Pragma("GCC visibility push(default)")
#define TRAINYARD_EXPORT_END _Pragma("GCC visibility pop")
