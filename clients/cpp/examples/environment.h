#pragma once

#include <cstdlib>
#include <string>

// A variable of the environment.
inline std::string Variable(const char* name, const std::string& otherwise = "") {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}
