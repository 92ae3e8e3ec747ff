//! What of the text work of npud has its best libraries in Rust, behind the C interface of proto/text_library.h, which
//! documents each entry point. Nothing unwinds into C: a panic becomes an error of the call.

mod chat_template;
mod constraint;
mod generation_tag;
mod grammar;
mod interface;
mod json_schema;
mod json_schema_check;
mod json_schema_rewrite;
mod lark_scan;
mod python;
mod python_methods;
mod turn;
mod vocabulary;
