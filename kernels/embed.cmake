# Writes OUTPUT: a C file with every kernel source as a NUL-terminated array, and a table of their names.
# usage: cmake -DOUTPUT=FILE -DDIRECTORY=DIR -DSOURCES=a.cl;b.cl -P embed.cmake
set(arrays "")
set(table "")
set(index 0)
foreach(source ${SOURCES})
  file(READ ${DIRECTORY}/${source} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "static const char source_${index}[] = {${bytes}0};\n")
  string(APPEND table "    {\"${source}\", source_${index}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUTPUT} "#include \"kernels/sources.h\"\n\n${arrays}\nconst struct kernel_source kernel_sources[] = {\n${table}    {0, 0},\n};\n")
