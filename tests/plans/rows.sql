-- Rows for the tenants of `wanted` (id, size), with the words of `named` (model, terms).
create temporary table pool as
    select p, (select array_agg(random() - 0.5) from generate_series(1, 256) where p > 0)::halfvec v
    from generate_series(1, 500) p;
create temporary table row_of as
    select t.id tenant_id, s.scope, row_number() over () n
    from wanted t
    cross join lateral (values (1, t.size), (2, t.size / 10 + 1)) s(scope, many)
    cross join lateral generate_series(1, s.many);
insert into tenants (id, slug) select id, id::text from wanted;
insert into labels select id, 1, 'model', (select model from named) from wanted
    union all select id, 2, 'tag', 'net' from wanted
    union all select id, 3, 'section', 'pitfalls' from wanted;
insert into scopes select id, s, 'p', 'collection', chr(96 + s) from wanted, generate_series(1, 2) s;
insert into scope_stats select tenant_id, scope, gen_random_uuid(), count(*) from row_of group by 1, 2;
insert into memories (tenant_id, id, seq, project_id, layer, kind, scope_id, content, searchable_text,
                      source, tokenizer, fingerprint)
    overriding system value
    select tenant_id, gen_random_uuid(), n, 'p', 'rm', 'reflection', scope, 'x', 'x', 'test', 't', ''
    from row_of;
insert into memory_vectors
    select r.tenant_id, r.scope, 1, r.n, 1, case when n % 3 = 0 then 3 end, null, 0.5, random(), now(),
           case when n % 50 = 0 then '{2}'::int[] else '{}' end, p.v
    from row_of r join pool p on p.p = r.n % 500 + 1;
insert into postings
    select distinct r.tenant_id, r.scope, w.terms[1 + (random() * (cardinality(w.terms) - 1))::int], r.n, 1::real
    from row_of r, generate_series(1, 5), named w;
