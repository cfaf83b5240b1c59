/// The device library's headers, carried inside the compiler (made by cmake/embed.cmake).
#pragma once

#include <string>
#include <vector>

namespace forge {

struct DeviceSource {
    std::string path;  ///< relative to device/, e.g. cpu/matmul.h
    std::string text;
};
const std::vector<DeviceSource>& device_sources();

}  // namespace forge
