# Builds libqc_runtime_cuda, which has the operators for the CPU and for CUDA. It holds CUDA's runtime and finds the
# driver when it is used, so it loads everywhere; the library without CUDA does not depend on it.
set(QC_CUDA AUTO CACHE STRING "Build the library for CUDA: ON, OFF or AUTO, which is where its compiler is")

# What is missing ends the build if the library is asked for, and else is said.
function(qc_without_cuda reason)
  if(QC_CUDA STREQUAL "AUTO")
    message(STATUS "qc is built without CUDA: ${reason}")
  else()
    message(FATAL_ERROR "qc cannot be built with CUDA: ${reason} Mend that or leave out QC_CUDA=ON.")
  endif()
endfunction()

if(NOT QC_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "QC_CUDA is '${QC_CUDA}' but must be ON, OFF or AUTO.")
endif()
if(QC_CUDA STREQUAL "OFF")
  return()
endif()

# Machine code for the generations of cards, each of which runs that of its first; and for newer ones what the
# driver compiles, which only a driver as new as the compiler can.
set(QC_CUDA_GENERATIONS OFF)
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  set(QC_CUDA_GENERATIONS ON)
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90-real 90-virtual)
endif()
check_language(CUDA)  # compiles something, so it also finds out if the compiler is broken
if(NOT CMAKE_CUDA_COMPILER)
  qc_without_cuda("no working CUDA compiler (nvcc) was found.")
  return()
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 11.8)
  qc_without_cuda("the CUDA compiler has version ${CMAKE_CUDA_COMPILER_VERSION}, but 11.8 or newer is needed.")
  return()
endif()
if(QC_CUDA_GENERATIONS AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
  list(APPEND CMAKE_CUDA_ARCHITECTURES 100-real 120-real)
endif()
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)

set(QC_CUDA_SOURCES ${SOURCES}/cuda)
qc_add_library(qc_runtime_cuda
  ${QC_CUDA_SOURCES}/cuda_ops.cpp
  ${QC_CUDA_SOURCES}/device.cu
  ${QC_CUDA_SOURCES}/fake_quantize.cu
  ${QC_CUDA_SOURCES}/observe.cu)
target_compile_definitions(qc_runtime_cuda PRIVATE QC_WITH_CUDA)
target_compile_options(qc_runtime_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false --threads=0 -Xcompiler=-Wall,-Wextra>)
set_target_properties(qc_runtime_cuda PROPERTIES CUDA_RUNTIME_LIBRARY Static)
message(STATUS "qc is built with CUDA ${CMAKE_CUDA_COMPILER_VERSION}")
