# Most of BoringSSL's compile time is spent on the same headers in 250 files. Precompiled, they cost
# it once. CMake reads this file as a toolchain file, the only kind that BoringSSL's build script
# passes on; it sets the flags that the build script then leaves out.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_FLAGS_INIT "-ffunction-sections -fdata-sections -w")
set(CMAKE_CXX_FLAGS_INIT "-ffunction-sections -fdata-sections -w")
set(CMAKE_PROJECT_INCLUDE "${CMAKE_CURRENT_LIST_FILE}")

function(sidekick_precompile_headers)
    foreach(target crypto fipsmodule ssl)
        if(TARGET ${target})
            target_precompile_headers(${target} PRIVATE
                <algorithm> <array> <atomic> <functional> <limits> <memory> <optional> <string>
                <string_view> <tuple> <type_traits> <utility> <vector>
                <openssl/base.h> <openssl/bn.h> <openssl/bytestring.h> <openssl/ec.h>
                <openssl/err.h> <openssl/evp.h> <openssl/mem.h> <openssl/span.h>
                <openssl/stack.h> <openssl/x509.h>)
        endif()
    endforeach()
endfunction()

# The second time, CMake includes this file in a project, whose targets follow.
if(PROJECT_NAME AND NOT CMAKE_VERSION VERSION_LESS 3.19)
    cmake_language(DEFER CALL sidekick_precompile_headers)
endif()
