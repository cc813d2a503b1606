-- Hybrid search over some scopes of one tenant: exact BM25 from postings, exact cosine from the covering index, one answer.
--
-- df is counted while the postings are read and N is the sum of a scope's deltas, so there is nothing to keep in step.
-- Every candidate gets both scores. The dense leg orders by an expression no vector index can serve, so the planner cannot
-- swap the exact scan for an approximate one. Filters are columns of the covering index. (RETRIEVAL.md sections 4 to 6.)
with term as materialized (
    select x.term, x.qf from unnest(cast(:terms as int[]), cast(:frequencies as real[])) x(term, qf)
),
scope as materialized (
    select z.scope, coalesce((select sum(k.delta) from scope_stats k
                              where k.tenant_id = :tenant and k.scope = z.scope), 1)::real n
    from unnest(cast(:scopes as int[])) z(scope)
),
hit as materialized (
    select p.n, (p.weight * t.qf * ln(1 + (greatest(s.n, p.df) - p.df + 0.5) / (p.df + 0.5)))::real c
    from scope s cross join term t cross join lateral (
        select o.n, o.weight, count(*) over () df from postings o
        where o.tenant_id = :tenant and o.scope = s.scope and o.term = t.term
    ) p
),
lexical as materialized (
    select h.n, sum(h.c)::real ls from hit h group by h.n
),
dense as materialized (
    select v.n, (-(v.emb <#> :query))::real vs
    from memory_vectors v
    where v.tenant_id = :tenant and v.scope = any(cast(:scopes as int[])) and v.model = :model
      and (cast(:kinds as smallint[]) is null or v.kind = any(:kinds))
      and (cast(:sections as int[]) is null or v.section = any(:sections))
      and (cast(:errors as int[]) is null or v.error_category = any(:errors))
      and (cast(:tags as int[]) is null or v.tag_ids && :tags)
      and v.confidence >= cast(:min_confidence as real) and v.importance >= cast(:min_importance as real)
      and (cast(:since as timestamptz) is null or v.created_at >= :since)
      and (cast(:until as timestamptz) is null or v.created_at <= :until)
    order by (v.emb <#> :query) + 0, v.n
    limit cast(:candidates as int)
),
worded as materialized (
    select v.n, (-(v.emb <#> :query))::real vs
    from (select l.n, l.ls from lexical l order by l.ls desc, l.n
          limit cast(:candidates as int) * case when cast(:filtered as bool) then 20 else 4 end) l
    join memory_vectors v on v.tenant_id = :tenant and v.scope = any(cast(:scopes as int[])) and v.model = :model and v.n = l.n
    where (cast(:kinds as smallint[]) is null or v.kind = any(:kinds))
      and (cast(:sections as int[]) is null or v.section = any(:sections))
      and (cast(:errors as int[]) is null or v.error_category = any(:errors))
      and (cast(:tags as int[]) is null or v.tag_ids && :tags)
      and v.confidence >= cast(:min_confidence as real) and v.importance >= cast(:min_importance as real)
      and (cast(:since as timestamptz) is null or v.created_at >= :since)
      and (cast(:until as timestamptz) is null or v.created_at <= :until)
    order by l.ls desc, l.n
    limit cast(:candidates as int) * 4
),
candidate as materialized (
    select u.n, u.vs, coalesce(l.ls, 0)::real ls
    from (select d.n, d.vs from dense d union select w.n, w.vs from worded w) u left join lexical l on l.n = u.n
),
ranked as (
    select c.n, c.vs, c.ls,
           max(c.vs) over () max_vs, min(c.vs) over () min_vs, max(c.ls) over () max_ls, min(c.ls) over () min_ls,
           rank() over (order by c.vs desc) dense_rank, rank() over (order by c.ls desc) lexical_rank
    from candidate c
),
scored as (
    select r.*,
           case cast(:fusion as text)
               when 'anchored' then coalesce(greatest(r.vs, 0) / nullif(greatest(r.max_vs, 0), 0), 0)
               when 'minmax' then coalesce((r.vs - r.min_vs) / nullif(r.max_vs - r.min_vs, 0), 0.5)
               else 1.0 / (60 + r.dense_rank) end::real vector_score,
           case cast(:fusion as text)
               when 'anchored' then coalesce(r.ls / nullif(r.max_ls, 0), 0)
               when 'minmax' then coalesce((r.ls - r.min_ls) / nullif(r.max_ls - r.min_ls, 0), 0.5)
               else 1.0 / (60 + r.lexical_rank) end::real bm25_score
    from ranked r
)
select m.id, s.vs, s.ls, s.dense_rank, s.lexical_rank, s.vector_score, s.bm25_score,
       (cast(:alpha as real) * s.vector_score + (1 - cast(:alpha as real)) * s.bm25_score)::real combined_score
from scored s join memories m on m.tenant_id = :tenant and m.n = s.n
order by combined_score desc, s.n desc
limit cast(:top_k as int)
