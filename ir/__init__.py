"""The ground floor: data types, source spans, errors, knobs, node walks, rewrite-rule tables, modules and the pass runner."""
