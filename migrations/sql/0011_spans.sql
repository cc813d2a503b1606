-- What a bullet said from one version of its playbook up to, but not including, another. A row is written once, when the bullet
-- changes; what it says now stands in `memories`. Its length lies from 2^width up to 2^(width+1): of each width only those can hold
-- at a version that end in the 2^(width+1) versions after it, so a playbook of the past is one short range of the index a width.
-- The search text is null where it follows from the other texts.
create table bullet_spans (
    tenant_id uuid not null,
    bullet_id uuid not null,
    until integer not null,
    since integer not null,
    width smallint generated always as (length(ltrim((until - since)::bit(32)::text, '0')) - 1) stored not null,
    scope integer not null,
    section text,
    title text,
    when_to_use text,
    content text not null,
    searchable_text text,
    keywords text[] default '{}' not null,
    tags text[] default '{}' not null,
    status text not null,
    pinned boolean not null,
    constraint bullet_spans_pkey primary key (tenant_id, bullet_id, until),
    constraint bullet_spans_length_check check (since < until)
);

create index bullet_spans_held_idx on bullet_spans (tenant_id, scope, width, until, since);

-- The spans answer what it was for.
drop index memory_revisions_version_idx;

drop trigger memory_keep_update on memories;

create or replace function memory_keep() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    if old.revision is distinct from new.revision then
        insert into public.memory_revisions (tenant_id, memory_id, revision, version, scope, key, section, title, when_to_use, content,
                                             keywords, tags, importance, status, pinned, reason, actor, run_id)
        values (new.tenant_id, new.id, new.revision, new.version, new.scope, new.key, new.section, new.title, new.when_to_use, new.content,
                new.keywords, new.tags, new.importance, new.status, new.pinned, new.change_reason, new.change_actor, new.change_run);
    end if;
    if old.version < new.version then
        insert into public.bullet_spans (tenant_id, bullet_id, since, until, scope, section, title, when_to_use, content,
                                         searchable_text, keywords, tags, status, pinned)
        values (old.tenant_id, old.id, old.version, new.version, old.scope, old.section, old.title, old.when_to_use, old.content,
                nullif(old.searchable_text, concat_ws(E'\n', nullif(old.when_to_use, ''), nullif(old.title, ''), nullif(old.content, ''),
                                                      nullif(array_to_string(old.keywords, ' '), ''))),
                old.keywords, old.tags, old.status, old.pinned);
    end if;
    return null;
end $$;

create trigger memory_keep_update after update on memories for each row
when (old.revision is distinct from new.revision or old.version is distinct from new.version) execute function memory_keep();
