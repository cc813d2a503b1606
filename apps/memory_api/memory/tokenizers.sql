-- Which tokenisers indexed a tenant's memories: one probe of the index each.
with recursive v as (
    (select m.tokenizer from memories m where m.tenant_id = :tenant order by m.tokenizer limit 1)
    union all
    select (select m.tokenizer from memories m
            where m.tenant_id = :tenant and m.tokenizer > v.tokenizer order by m.tokenizer limit 1)
    from v where v.tokenizer is not null
)
select v.tokenizer from v where v.tokenizer is not null
