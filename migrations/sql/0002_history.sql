-- A bullet's revision says in which version of its playbook it was made, and keeps its keywords too.
alter table memories add column version integer;

alter table memories add column place integer;

alter table memory_revisions add column version integer;

alter table memory_revisions add column keywords text[] default '{}' not null;

-- What a bullet was at a version: one probe a bullet. What changed between two versions: one range.
create index memory_revisions_version_idx on memory_revisions (tenant_id, memory_id, version) where version is not null;

create index memory_revisions_changed_idx on memory_revisions (tenant_id, scope, version, memory_id) where version is not null;

drop trigger memory_revise on memories;

-- A bullet of a playbook changes with its playbook's version or not at all.
create or replace function memory_revise() returns trigger language plpgsql as $$
begin
    if old.version is not null and new.version is not distinct from old.version then
        raise exception 'a bullet of a playbook is changed through its playbook' using errcode = 'restrict_violation';
    end if;
    new.revision := old.revision + 1;
    new.updated_at := now();
    return new;
end $$;

create trigger memory_revise before update on memories for each row
when ((old.content, old.when_to_use, old.title, old.section, old.status, old.tags, old.importance, old.key, old.pinned, old.keywords)
      is distinct from
      (new.content, new.when_to_use, new.title, new.section, new.status, new.tags, new.importance, new.key, new.pinned, new.keywords))
execute function memory_revise();

create or replace function memory_keep() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    insert into public.memory_revisions (tenant_id, memory_id, revision, version, scope, key, section, title, when_to_use, content,
                                         keywords, tags, importance, status, pinned, reason, actor, run_id)
    values (new.tenant_id, new.id, new.revision, new.version, new.scope, new.key, new.section, new.title, new.when_to_use, new.content,
            new.keywords, new.tags, new.importance, new.status, new.pinned, new.change_reason, new.change_actor, new.change_run);
    return null;
end $$;
