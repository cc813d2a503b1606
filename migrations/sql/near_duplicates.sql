-- Candidates share at least two words that occur in at most twelve bullets; then the cosine of the vectors decides. One playbook at a time
-- (OFFSET 0 prevents another plan): PostgreSQL underestimates the pairs, and would compute them once for each vector of the tenant.
create function questions.near_duplicates(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, key text, other_key text, section text, other_section text, content text,
               other_content text, cosine float8, changed_at timestamptz)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select p.tenant_id, p.project_id, p.name playbook, d.*
    from playbooks p
    cross join lateral (
        select a.key, b.key other_key, a.section, b.section other_section, a.content, b.content other_content,
               1 - (x.embedding <=> y.embedding) cosine, greatest(a.updated_at, b.updated_at) changed_at
        from (
            select n.seq, o.seq other_seq
            from (
                select term_id, array_agg(t.seq) seqs
                from memories t
                cross join lateral unnest(t.terms) term_id
                where t.tenant_id = p_tenant_id and t.scope_id = p.scope_id and t.key is not null and t.status = 'active'
                group by term_id
                having count(*) between 2 and 12
            ) rare
            cross join lateral unnest(rare.seqs) n(seq)
            cross join lateral unnest(rare.seqs) o(seq)
            where n.seq < o.seq
            group by n.seq, o.seq
            having count(*) >= 2
        ) pair
        cross join (
            select max(v.model_label_id) label_id from memory_vectors v where v.tenant_id = p_tenant_id and v.scope_id = p.scope_id
        ) model
        join memory_vectors x on x.tenant_id = p_tenant_id and x.scope_id = p.scope_id and x.model_label_id = model.label_id and x.seq = pair.seq
        join memory_vectors y on y.tenant_id = p_tenant_id and y.scope_id = p.scope_id and y.model_label_id = model.label_id and y.seq = pair.other_seq
        join memories a on a.tenant_id = p_tenant_id and a.seq = pair.seq
        join memories b on b.tenant_id = p_tenant_id and b.seq = pair.other_seq
        where 1 - (x.embedding <=> y.embedding) >= 0.85
        offset 0
    ) d
    where p.tenant_id = p_tenant_id and (p_project_id is null or p.project_id = p_project_id)
      and (p_playbook is null or p.name = p_playbook)
      and d.changed_at >= p_since and d.changed_at < p_until;
end $$;
